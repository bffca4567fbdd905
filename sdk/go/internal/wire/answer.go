package wire

// AppendJSON appends the answer as JSON, with the fields that its Type has.
func (a *Answer) AppendJSON(b []byte) []byte {
	b = appendText(b, `{"type":`, a.Type)
	if a.Nonce != "" {
		b = appendText(b, `,"nonce":`, a.Nonce)
	}
	if a.Manifest != "" {
		b = appendText(b, `,"manifest":`, a.Manifest)
	}
	switch a.Type {
	case AnswerCompleted:
		b = appendRefs(appendRaw(b, `,"output":`, a.Output), a.Unasked)
	case AnswerRestarted:
		b = appendRaw(b, `,"payload":`, a.Payload)
	case AnswerFailed:
		b = a.appendFailure(b)
	case AnswerSuspended:
		b = appendInt(b, `,"seen":`, a.Seen)
		if len(a.Register) > 0 {
			b = appendItems(append(b, `,"register":`...), a.Register)
		}
		b = appendWaits(append(b, `,"waits":`...), a.Waits)
		b = appendRefs(b, a.Unasked)
	case AnswerYielded:
		b = appendInt(b, `,"seen":`, a.Seen)
		if a.Excused {
			b = append(b, `,"excused":true`...)
		}
	}
	if len(a.Unsaved) > 0 {
		b = appendItems(append(b, `,"unsaved":`...), a.Unsaved)
	}
	return append(appendLines(b, a.Logs), '}')
}

func (a *Answer) appendFailure(b []byte) []byte {
	b = AppendError(append(b, `,"error":`...), a.Error)
	b = appendBool(b, `,"retriable":`, a.Retriable)
	b = appendInt(b, `,"retries":`, int64(a.Retries))
	if a.RetryAfterMs != nil {
		b = appendInt(b, `,"retryAfterMs":`, *a.RetryAfterMs)
	}
	return b
}

func appendWaits(b []byte, waits []Wait) []byte {
	b = append(b, '[')
	for i, w := range waits {
		if i > 0 {
			b = append(b, ',')
		}
		switch {
		case w.Retry != nil:
			b = append(appendRef(append(b, `{"retry":`...), w.Retry), '}')
		case w.Wait != nil:
			b = append(appendRef(append(b, `{"wait":`...), w.Wait), '}')
		case w.All != nil:
			b = appendWaits(append(b, `{"all":`...), w.All)
		default:
			b = appendWaits(append(b, `{"race":`...), w.Race)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendRef appends the opening and the fields of a step's name; whoever calls it closes the object.
func appendRef(b []byte, step *StepRef) []byte {
	return appendInt(appendText(b, `{"name":`, step.Name), `,"number":`, int64(step.Number))
}

// appendRefs appends the field of unasked steps, nothing where there are none.
func appendRefs(b []byte, steps []StepRef) []byte {
	for i := range steps {
		if i == 0 {
			b = append(b, `,"unasked":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(appendRef(b, &steps[i]), '}')
	}
	if len(steps) > 0 {
		b = append(b, ']')
	}
	return b
}

// AppendJSON appends the end as JSON.
func (e *End) AppendJSON(b []byte) []byte {
	b = appendText(b, `{"call":`, e.Call)
	b = appendText(b, `,"token":`, e.Token)
	b = appendText(b, `,"nonce":`, e.Nonce)
	inner := *e.End
	inner.Nonce = "" // it stands beside the end
	return append(inner.AppendJSON(append(b, `,"end":`...)), '}')
}

// Size is about how many bytes the end takes in a request.
func (e *End) Size() int {
	size := 512 + len(e.End.Output) + len(e.End.Payload)
	for _, it := range e.End.Unsaved {
		size += it.Size()
	}
	for _, it := range e.End.Register {
		size += it.Size()
	}
	for _, l := range e.End.Logs {
		size += l.Size()
	}
	if e.End.Error != nil {
		size += ErrorBytesMax
	}
	return size
}

// AppendJSON appends the answer to a verify as JSON.
func (v *Verified) AppendJSON(b []byte) []byte {
	b = appendKinds(append(b, `{"type":"verified","unasked":`...), v.Unasked)
	b = appendKinds(append(b, `,"asked":`...), v.Asked)
	b = appendGiven(b, `,"end":`, v.End)
	if v.Error != nil {
		b = AppendError(append(b, `,"error":`...), v.Error)
	}
	return append(b, '}')
}

func appendKinds(b []byte, steps []StepKind) []byte {
	b = append(b, '[')
	for i, s := range steps {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, `{"kind":`, s.Kind)
		b = appendText(b, `,"name":`, s.Name)
		b = append(appendInt(b, `,"number":`, int64(s.Number)), '}')
	}
	return append(b, ']')
}
