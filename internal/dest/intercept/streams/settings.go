package streams

import (
	"io"

	"skep.dev/skep/internal/flow"
)

// meet is the beginning of a connection: the agent's settings, then the destination's.
// Each is told the windows of the other, and acknowledges when the other has.
func (c *conn) meet() error {
	var said [len(preface)]byte
	if _, err := io.ReadFull(c.Agent, said[:]); err != nil {
		return err
	}
	f, err := c.fromAgent.next()
	if err != nil {
		return err
	}
	if string(said[:]) != preface || f.kind != frameSettings || f.has(flagAck) {
		return broken("no preface")
	}
	all, err := f.settings()
	if err != nil {
		return err
	}
	hello := appendSettings([]byte(preface), append(c.ofAgent(all), setting{settingPush, 0}, setting{settingHeadList, maxAnswerHead}))
	if c.Failed != flow.None {
		c.toUp.kill()
		c.toAgent.put(func(b []byte) []byte {
			return appendFrame(appendSettings(b, c.ofDestination(nil, true)), frameSettings, flagAck, 0, nil)
		})
		c.agentSettings = 0
		return nil
	}
	if _, err := c.Destination.Write(hello); err != nil {
		return err
	}
	if f, err = c.fromUp.next(); err != nil {
		return err
	}
	if f.kind != frameSettings || f.has(flagAck) {
		return broken("a destination without settings")
	}
	if all, err = f.settings(); err != nil {
		return err
	}
	c.toAgent.put(func(b []byte) []byte { return appendSettings(b, c.ofDestination(all, true)) })
	return nil
}

// ofAgent takes settings of the agent over and returns what the destination is told.
func (c *conn) ofAgent(all []setting) (tell []setting) {
	c.agentSettings++
	for _, s := range all {
		switch s.id {
		case settingWindow:
			c.back = int64(s.value)
			tell = append(tell, s)
		case settingTable:
			c.newBackTable = true
		}
	}
	return tell
}

// ofDestination does the same with those of the destination. What makes windows smaller
// counts from the acknowledgement on.
func (c *conn) ofDestination(all []setting, first bool) (tell []setting) {
	smaller, most := int64(0), uint32(maxStreams)
	for _, s := range all {
		switch s.id {
		case settingWindow:
			by := int64(s.value) - c.initial - smaller
			for _, other := range c.upSettings {
				by -= other
			}
			if by > 0 {
				c.widen(by)
			} else {
				smaller += by
			}
			tell = append(tell, s)
		case settingTable:
			c.newTable = true
		case settingStreams:
			first, most = true, min(most, s.value)
		case settingConnect:
			c.connects = s.value == 1
			tell = append(tell, s)
		}
	}
	if first {
		tell = append(tell, setting{settingStreams, most}, setting{settingHeadList, maxRequest})
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
func (c *conn) agentSets(f frame) error {
	all, err := f.settings()
	if err != nil {
		return err
	}
	if !f.has(flagAck) {
		if c.agentSettings >= maxUnacked {
			return &fault{codeCalm, "settings without end"}
		}
		tell := c.ofAgent(all)
		if c.Failed != flow.None {
			c.agentSettings--
			c.toAgent.put(func(b []byte) []byte { return appendFrame(b, frameSettings, flagAck, 0, nil) })
		}
		c.toUp.put(func(b []byte) []byte { return appendSettings(b, tell) })
		return nil
	}
	if len(c.upSettings) == 0 {
		return broken("an acknowledgement of nothing")
	}
	c.widen(c.upSettings[0])
	c.upSettings = c.upSettings[1:]
	c.toUp.put(func(b []byte) []byte { return appendFrame(b, frameSettings, flagAck, 0, nil) })
	return nil
}

// upSets is one of the destination.
func (c *conn) upSets(f frame) error {
	all, err := f.settings()
	if err != nil {
		return err
	}
	if !f.has(flagAck) {
		if len(c.upSettings) >= maxUnacked {
			return &fault{codeCalm, "settings without end"}
		}
		tell := c.ofDestination(all, false)
		c.toAgent.put(func(b []byte) []byte { return appendSettings(b, tell) })
		c.flushAll()
		return nil
	}
	if c.agentSettings == 0 {
		return broken("an acknowledgement of nothing")
	}
	c.agentSettings--
	c.toAgent.put(func(b []byte) []byte { return appendFrame(b, frameSettings, flagAck, 0, nil) })
	return nil
}
