import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { request } from '../src/http.js';
import { sendEmail } from '../src/mail.js';
import { findOrCreateTicket, type Ticket } from '../src/ticket.js';
import { outside } from './outside.js';

test('an email with a key is sent once', async () => {
  const orderId = randomUUID();
  const email = {
    to: 'ada@example.com',
    subject: 'Thank you',
    text: '',
    order: orderId,
    template: 'confirmation',
  } as const;
  const first = await sendEmail(outside, email, `confirmation_${orderId}`);
  expect(await sendEmail(outside, email, `confirmation_${orderId}`)).toBe(first);
});

test('a ticket that is there is found, not made again', async () => {
  const orderId = randomUUID();
  const first = await findOrCreateTicket(outside, orderId);
  expect(await findOrCreateTicket(outside, orderId)).toEqual(first);
  const { data } = await request<{ data: Ticket[] }>(new URL(`/tickets?order=${orderId}`, outside));
  expect(data).toEqual([first]);
});

test('a refusal is thrown with what the service said', async () => {
  await expect(findOrCreateTicket(outside, '')).rejects.toThrow('a ticket needs an order');
});
