package kind

// ModelAdmitted is one model call before its only transport attempt (MG5):
// sizes and digests, and what was reserved for it.
type ModelAdmitted struct {
	Call          string `json:"call"`
	Role          Bytes  `json:"role"`
	Dialect       string `json:"dialect"`
	Target        string `json:"target"`
	Model         string `json:"model,omitempty"`
	Stream        bool   `json:"stream"`
	RequestDigest string `json:"request_digest"`
	RequestBytes  uint64 `json:"request_bytes"`
	HeldInput     int64  `json:"held_input"`  // tokens
	HeldOutput    int64  `json:"held_output"` // tokens
	HeldMicroUSD  int64  `json:"held_usd_micro"`
	Prices        string `json:"prices,omitempty"` // the version that prices it
}

// ModelSettled is what became of an admitted call, or says why one was not admitted:
// then it is the only entry of that call.
type ModelSettled struct {
	Call         string `json:"call"`
	Outcome      string `json:"outcome"` // done, refused, failed, cancelled, uncertain
	Status       uint16 `json:"status,omitempty"`
	Reason       string `json:"reason,omitempty"`
	Input        int64  `json:"input"` // tokens
	Output       int64  `json:"output"`
	Cached       int64  `json:"cached,omitempty"`
	Reasoning    int64  `json:"reasoning,omitempty"`
	MicroUSD     int64  `json:"usd_micro"`
	Estimated    bool   `json:"estimated"` // the target did not say what was used
	AnswerDigest string `json:"answer_digest,omitempty"`
	AnswerBytes  uint64 `json:"answer_bytes"`
	Ms           uint64 `json:"ms"`
}

// Kind implements [Body].
func (ModelAdmitted) Kind() Kind { return KindModelAdmitted }

// Kind implements [Body].
func (ModelSettled) Kind() Kind { return KindModelSettled }
