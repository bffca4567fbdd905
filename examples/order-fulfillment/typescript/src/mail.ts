import { postJson, request } from './http.js';

export interface Email {
  to: string;
  subject: string;
  text: string;
  order: string;
  template: 'confirmation' | 'invoice';
}

/** The mail provider sends one email for each key, however often it is asked. */
export async function sendEmail(outside: URL, email: Email, idempotencyKey: string): Promise<string> {
  const sent = await request<{ id: string }>(
    new URL('/emails', outside),
    postJson(email, { 'Idempotency-Key': idempotencyKey }),
  );
  return sent.id;
}
