// The declarations need neither @types/node nor any library of their own.
import { nelkap } from 'nelkap';
import { handler as expressHandler } from 'nelkap/express';
import { handler } from 'nelkap/node';

const w = nelkap.workflow('w', async (x: string) => x);
export const all = [nelkap.handler({ workflows: [w] }), handler({ workflows: [w] }), expressHandler({ workflows: [w] })];
