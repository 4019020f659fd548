package streams

import (
	"io"

	"skep.dev/skep/internal/flow"
	"skep.dev/skep/internal/h2/frame"
)

// meet is the beginning of a connection: the agent's settings, then the destination's.
// Each is told the windows of the other, and acknowledges when the other has.
func (c *conn) meet() error {
	var said [len(frame.Preface)]byte
	if _, err := io.ReadFull(c.Agent, said[:]); err != nil {
		return err
	}
	f, err := c.fromAgent.Next()
	if err != nil {
		return err
	}
	if string(said[:]) != frame.Preface || f.Kind != frame.Settings || f.Has(frame.Ack) {
		return frame.Broken("no preface")
	}
	all, err := f.Settings()
	if err != nil {
		return err
	}
	hello := frame.AppendSettings([]byte(frame.Preface), append(c.ofAgent(all), frame.Setting{ID: frame.SettingPush, Value: 0}, frame.Setting{ID: frame.SettingHeadList, Value: maxAnswerHead}))
	if c.Failed != flow.None {
		c.toUp.kill()
		c.toAgent.put(func(b []byte) []byte {
			return frame.Append(frame.AppendSettings(b, c.ofDestination(nil, true)), frame.Settings, frame.Ack, 0, nil)
		})
		c.agentSettings = 0
		return nil
	}
	if _, err := c.Destination.Write(hello); err != nil {
		return err
	}
	if f, err = c.fromUp.Next(); err != nil {
		return err
	}
	if f.Kind != frame.Settings || f.Has(frame.Ack) {
		return frame.Broken("a destination without settings")
	}
	if all, err = f.Settings(); err != nil {
		return err
	}
	c.toAgent.put(func(b []byte) []byte { return frame.AppendSettings(b, c.ofDestination(all, true)) })
	return nil
}

// ofAgent takes settings of the agent over and returns what the destination is told.
func (c *conn) ofAgent(all []frame.Setting) (tell []frame.Setting) {
	c.agentSettings++
	for _, s := range all {
		switch s.ID {
		case frame.SettingWindow:
			c.back = int64(s.Value)
			tell = append(tell, s)
		case frame.SettingTable:
			c.newBackTable = true
		}
	}
	return tell
}

// ofDestination does the same with those of the destination. What makes windows smaller
// counts from the acknowledgement on.
func (c *conn) ofDestination(all []frame.Setting, first bool) (tell []frame.Setting) {
	smaller, most := int64(0), uint32(maxStreams)
	for _, s := range all {
		switch s.ID {
		case frame.SettingWindow:
			by := int64(s.Value) - c.initial - smaller
			for _, other := range c.upSettings {
				by -= other
			}
			if by > 0 {
				c.widen(by)
			} else {
				smaller += by
			}
			tell = append(tell, s)
		case frame.SettingTable:
			c.newTable = true
		case frame.SettingStreams:
			first, most = true, min(most, s.Value)
		case frame.SettingConnect:
			c.connects = s.Value == 1
			tell = append(tell, s)
		}
	}
	if first {
		tell = append(tell, frame.Setting{ID: frame.SettingStreams, Value: most}, frame.Setting{ID: frame.SettingHeadList, Value: maxRequest})
	}
	c.upSettings = append(c.upSettings, smaller)
	return tell
}

// widen changes the windows of all streams to the destination, and what the agent knows
// of them.
func (c *conn) widen(by int64) {
	c.initial += by
	for _, s := range c.streams {
		s.granted += by
		s.window += by
	}
}

// agentSets is a SETTINGS frame of the agent.
func (c *conn) agentSets(f frame.Frame) error {
	all, err := f.Settings()
	if err != nil {
		return err
	}
	if !f.Has(frame.Ack) {
		if c.agentSettings >= maxUnacked {
			return frame.Fail(frame.CodeCalm, "settings without end")
		}
		tell := c.ofAgent(all)
		if c.Failed != flow.None {
			c.agentSettings--
			c.toAgent.put(func(b []byte) []byte { return frame.Append(b, frame.Settings, frame.Ack, 0, nil) })
		}
		c.toUp.put(func(b []byte) []byte { return frame.AppendSettings(b, tell) })
		return nil
	}
	if len(c.upSettings) == 0 {
		return frame.Broken("an acknowledgement of nothing")
	}
	c.widen(c.upSettings[0])
	c.upSettings = c.upSettings[1:]
	c.toUp.put(func(b []byte) []byte { return frame.Append(b, frame.Settings, frame.Ack, 0, nil) })
	return nil
}

// upSets is one of the destination.
func (c *conn) upSets(f frame.Frame) error {
	all, err := f.Settings()
	if err != nil {
		return err
	}
	if !f.Has(frame.Ack) {
		if len(c.upSettings) >= maxUnacked {
			return frame.Fail(frame.CodeCalm, "settings without end")
		}
		tell := c.ofDestination(all, false)
		c.toAgent.put(func(b []byte) []byte { return frame.AppendSettings(b, tell) })
		c.flushAll()
		return nil
	}
	if c.agentSettings == 0 {
		return frame.Broken("an acknowledgement of nothing")
	}
	c.agentSettings--
	c.toAgent.put(func(b []byte) []byte { return frame.Append(b, frame.Settings, frame.Ack, 0, nil) })
	return nil
}
