import { once } from 'node:events';
import express from 'express';
import { nelkap } from 'nelkap';
import { handler } from 'nelkap/express';
import { listContacts, listInvoices } from './database.js';
import { fulfillOrder } from './fulfill-order.js';
import { refundOrder } from './refund-order.js';
import { sendInvoice } from './send-invoice.js';
import { settings } from './settings.js';
import { database } from './shop.js';

const app = express();
app.use('/api/nelkap', handler({ workflows: [fulfillOrder, sendInvoice, refundOrder] }));
// For whoever wants to see the shop's rows.
app.get('/contacts', async (_, response) => void response.json(await listContacts(database)));
app.get('/invoices', async (_, response) => void response.json(await listInvoices(database)));

const server = app.listen(settings.port, '127.0.0.1');
await once(server, 'listening');
console.log(`shop-ts serves its workflows at http://127.0.0.1:${settings.port}/api/nelkap`);

// A deploy ends the process politely: running bodies finish and are saved, and the next process goes on from there.
await Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
await nelkap.stop();
server.close();
await database.close();
