import { PGlite } from '@electric-sql/pglite';
import type { Order } from './order.js';

const schema = `
  CREATE TABLE IF NOT EXISTS order_claims (
    order_id text PRIMARY KEY,
    run_id   text NOT NULL
  );
  CREATE TABLE IF NOT EXISTS contacts (
    email text PRIMARY KEY,
    name  text NOT NULL
  );
  CREATE TABLE IF NOT EXISTS invoices (
    id             text PRIMARY KEY,
    order_id       text NOT NULL,
    email          text NOT NULL REFERENCES contacts,
    amount         integer NOT NULL,
    currency       text NOT NULL,
    payment_intent text NOT NULL
  );
`;

export type Database = PGlite;

/** Opens the shop's database: Postgres in this process, with its files in a folder (or in memory, for tests). */
export async function openDatabase(folder = 'memory://'): Promise<Database> {
  const database = await PGlite.create(folder);
  await database.exec(schema);
  return database;
}

/**
 * Claims an order for a run and says which run owns it. The first run gets it; the others learn whose it is.
 *
 * The owner is a run, not an attempt: when the step is cut off after the row was written, its second attempt finds its
 * own run's claim and goes on.
 */
export async function claimOrder(database: Database, orderId: string, runId: string): Promise<string> {
  await database.query('INSERT INTO order_claims (order_id, run_id) VALUES ($1, $2) ON CONFLICT DO NOTHING', [
    orderId,
    runId,
  ]);
  const { rows } = await database.query<{ run_id: string }>(
    'SELECT run_id FROM order_claims WHERE order_id = $1',
    [orderId],
  );
  return only(rows, `claim of order ${orderId}`).run_id;
}

/** The email address says which contact it is: once more is an update of the same row. */
export async function saveContact(
  database: Database,
  { email, name }: Pick<Order, 'email' | 'name'>,
): Promise<void> {
  await database.query(
    `INSERT INTO contacts (email, name) VALUES ($1, $2)
     ON CONFLICT (email) DO UPDATE SET name = EXCLUDED.name`,
    [email, name],
  );
}

export interface Invoice {
  id: string;
  orderId: string;
  email: string;
  amount: number;
  currency: string;
  paymentIntent: string;
}

/** The id was drawn in a step of its own, so a second attempt brings the same one, and nothing is added. */
export async function createInvoice(database: Database, invoice: Invoice): Promise<void> {
  await database.query(
    `INSERT INTO invoices (id, order_id, email, amount, currency, payment_intent) VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (id) DO NOTHING`,
    [invoice.id, invoice.orderId, invoice.email, invoice.amount, invoice.currency, invoice.paymentIntent],
  );
}

export async function listContacts(database: Database): Promise<Pick<Order, 'email' | 'name'>[]> {
  const { rows } = await database.query<Pick<Order, 'email' | 'name'>>(
    'SELECT email, name FROM contacts ORDER BY email',
  );
  return rows;
}

const invoiceColumns =
  'id, order_id AS "orderId", email, amount, currency, payment_intent AS "paymentIntent"';

export async function listInvoices(database: Database): Promise<Invoice[]> {
  const { rows } = await database.query<Invoice>(`SELECT ${invoiceColumns} FROM invoices ORDER BY order_id`);
  return rows;
}

export async function findInvoice(database: Database, orderId: string): Promise<Invoice> {
  const { rows } = await database.query<Invoice>(
    `SELECT ${invoiceColumns} FROM invoices WHERE order_id = $1`,
    [orderId],
  );
  return only(rows, `invoice of order ${orderId}`);
}

function only<Row>(rows: Row[], what: string): Row {
  const [row] = rows;
  if (row === undefined) throw new Error(`There is no ${what}.`);
  return row;
}
