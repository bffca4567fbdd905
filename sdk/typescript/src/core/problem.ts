/** Why a run stops: an error's name, and a message that says what to do. */
export interface Problem {
  readonly name: string;
  readonly message: string;
}

export function tooManySteps(limit: number): Problem {
  return {
    name: 'TooManyStepsError',
    message: `The run has more than ${limit} steps: start other runs for parts of the work.`,
  };
}

export function otherKind(step: string, kind: string, asked: string): Problem {
  return {
    name: 'StepKindError',
    message: `The run has the step '${step}' as another kind of step (${kind}, not ${asked}): give the new step a name of its own.`,
  };
}

export function sameName(step: string): Problem {
  return {
    name: 'StepNameError',
    message:
      `Two steps are named '${step}' at the same time, and one started after waiting for something that is no step, ` +
      'so their order may differ on the next call: give each a name of its own, as with an id in it.',
  };
}

export function undoMissing(step: string): Problem {
  return {
    name: 'UndoMissingError',
    message:
      `the run has to undo "${step}", and its code does not ask for that step.undo any more: ` +
      'bring it back and replay the run, or undo by hand',
  };
}

/** The server breaks a rule of the protocol, or says that the SDK does. */
export function disagreement(detail: string): Problem {
  return {
    name: 'ProtocolError',
    message: `The server and the SDK disagree: ${detail.replace(/\.$/, '')}. Use versions of both that fit each other.`,
  };
}
