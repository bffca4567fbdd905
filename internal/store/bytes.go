package store

import "github.com/nelkap/nelkap/internal/workflow"

// Bytes is the size of the values in a change: what users gave, which is what can be large in it.
func (c Change) Bytes() (n int) {
	for _, op := range c {
		n += bytesOf(op)
	}
	return n
}

func bytesOf(op Op) (n int) {
	switch op := op.(type) {
	case InsertRun:
		return len(op.Payload)
	case UpdateRun:
		n = len(op.Output) + len(op.Error) + len(op.Trees) + bytesOfSteps(op.Append)
		if op.Chapter != nil {
			n += len(op.Chapter.Payload)
		}
		for i := range op.Open {
			if start := op.Open[i].Start; start != nil {
				n += len(start.Payload)
			}
		}
	case SaveSteps:
		n = bytesOfSteps(op.Steps)
		for i := range op.Retries {
			n += len(op.Retries[i].Error)
		}
		for i := range op.Starts {
			if step := op.Starts[i].Interrupted; step != nil {
				n += len(step.Output) + len(step.Error)
			}
		}
	case AddLogs:
		for i := range op.Lines {
			n += len(op.Lines[i].Message) + len(op.Lines[i].Fields)
		}
	case InsertEvent:
		return len(op.Event.Payload)
	case InsertCallback:
		return len(op.Callback.Payload)
	case EndCallback:
		return len(op.Payload)
	case TakeKey:
		return len(op.Key.Answer) + Change(op.Then).Bytes()
	case PassKey:
		return len(op.Key.Answer)
	case InsertDelivery:
		return len(op.Delivery.Request) + len(op.Delivery.Body)
	case PutSchedule:
		return len(op.Schedule.Payload)
	case PutLater:
		return len(op.Event.Payload)
	case PutApp:
		return len(op.App.Manifest)
	case PutNode:
		return len(op.Node.State)
	}
	return n
}

func bytesOfSteps(steps []workflow.Step) (n int) {
	for i := range steps {
		n += len(steps[i].Output) + len(steps[i].Error)
	}
	return n
}
