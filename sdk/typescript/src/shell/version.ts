/** The package's version; a test compares it with package.json. */
export const VERSION: string = '0.1.0';

/** The header of every answer: tells ours from a stranger's. */
export const SDK: string = `typescript/${VERSION}`;
