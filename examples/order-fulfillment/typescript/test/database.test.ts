import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  claimOrder,
  createInvoice,
  findInvoice,
  listContacts,
  listInvoices,
  openDatabase,
  saveContact,
  type Database,
} from '../src/database.js';

let database: Database;
beforeAll(async () => {
  database = await openDatabase();
});
afterAll(() => database.close());

const invoice = {
  id: 'i_1',
  orderId: 'o_1',
  email: 'ada@example.com',
  amount: 1999,
  currency: 'eur',
  paymentIntent: 'pi_1',
};

test('the first run owns an order, and goes on owning it', async () => {
  expect(await claimOrder(database, 'o_1', 'run_a')).toBe('run_a');
  expect(await claimOrder(database, 'o_1', 'run_b')).toBe('run_a');
  expect(await claimOrder(database, 'o_1', 'run_a')).toBe('run_a');
  expect(await claimOrder(database, 'o_2', 'run_b')).toBe('run_b');
});

test('of many runs at once, one owns the order and all agree', async () => {
  const runs = Array.from({ length: 20 }, (_, n) => `run_${n}`);
  const owners = await Promise.all(runs.map((run) => claimOrder(database, 'o_many', run)));
  expect(new Set(owners).size).toBe(1);
});

test('a contact saved twice is one row with the newer name', async () => {
  await saveContact(database, { email: 'ada@example.com', name: 'Ada' });
  await saveContact(database, { email: 'ada@example.com', name: 'Ada Lovelace' });
  expect(await listContacts(database)).toEqual([{ email: 'ada@example.com', name: 'Ada Lovelace' }]);
});

test('an invoice created twice with one id is one row', async () => {
  await createInvoice(database, invoice);
  await createInvoice(database, invoice);
  expect(await listInvoices(database)).toEqual([invoice]);
  expect(await findInvoice(database, 'o_1')).toEqual(invoice);
});

test('an invoice that is not there is an error', async () => {
  await expect(findInvoice(database, 'o_none')).rejects.toThrow('There is no invoice of order o_none');
});

test('what was written is there after the process has ended', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'order-fulfillment-'));
  const first = await openDatabase(folder);
  await claimOrder(first, 'o_1', 'run_a');
  await first.close();
  const second = await openDatabase(folder);
  expect(await claimOrder(second, 'o_1', 'run_b')).toBe('run_a');
  await second.close();
  rmSync(folder, { recursive: true });
});
