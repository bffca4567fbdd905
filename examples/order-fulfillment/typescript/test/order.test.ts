import { expect, test } from 'vitest';
import { arrivingOrder } from '../src/order.js';

const placed = { id: 'o_1', email: 'ada@example.com', name: 'Ada', amount: 1999 };
const order = { ...placed, currency: 'eur', shop: 'shop-ts' };

test('an order arrives as the payload of an event', () => {
  expect(arrivingOrder.parse(placed)).toEqual(order);
});

test('an order arrives as the body of a webhook', () => {
  const request = { webhook: 'shop-ts', method: 'POST', query: {}, headers: {}, body: '…', json: placed };
  expect(arrivingOrder.parse(request)).toEqual(order);
});

test('what is no order is refused', () => {
  expect(arrivingOrder.safeParse({ json: { id: 'o_1' } }).success).toBe(false);
  expect(arrivingOrder.safeParse({ ...placed, amount: -1 }).success).toBe(false);
});
