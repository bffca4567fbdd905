import { env } from 'node:process';

/** What the environment says; the defaults suit the commands in README.md. */
export const settings = {
  port: Number(env['PORT'] ?? 3001),
  /** Where the database keeps its files. */
  data: env['SHOP_DATA'] ?? './data',
  /** Where Stripe, the mail provider and the ticket desk are: here, the stand-in for all three. */
  outside: new URL(env['SHOP_OUTSIDE'] ?? 'http://127.0.0.1:12111'),
  /** A file to which each body of a step adds a line; none unless given. */
  marks: env['SHOP_MARKS'],
};
