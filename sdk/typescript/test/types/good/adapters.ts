import http from 'node:http';
import express from 'express';
import { nelkap } from 'nelkap';
import { handler as expressHandler } from 'nelkap/express';
import { handler } from 'nelkap/node';

const w = nelkap.workflow('w', async (x: string) => x);
http.createServer(handler({ workflows: [w] }));
const app = express();
app.use('/api/nelkap', expressHandler({ workflows: [w], maxDuration: '1m' }));
app.all('/api/nelkap', expressHandler({ workflows: [w] }));
app.use('/api/nelkap', handler({ workflows: [w] }));
export const plain = { fetch: nelkap.handler({ workflows: [w] }) };
