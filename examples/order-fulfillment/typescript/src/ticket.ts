import { postJson, request } from './http.js';

export interface Ticket {
  id: string;
  order: string;
}

export async function findTicketByOrder(outside: URL, orderId: string): Promise<Ticket | undefined> {
  const url = new URL('/tickets', outside);
  url.searchParams.set('order', orderId);
  const { data } = await request<{ data: Ticket[] }>(url);
  return data[0];
}

export async function createTicket(outside: URL, orderId: string): Promise<Ticket> {
  return request<Ticket>(new URL('/tickets', outside), postJson({ order: orderId }));
}

/** The ticket desk takes no key: look for the ticket of an attempt that was cut off before making one. */
export async function findOrCreateTicket(outside: URL, orderId: string): Promise<Ticket> {
  const existingTicket = await findTicketByOrder(outside, orderId);
  return existingTicket ?? createTicket(outside, orderId);
}
