import type { Stored } from './json.js';

/**
 * The app's events. Empty here; an app declares its own:
 *
 *     declare module 'nelkap' { interface Events { 'order.paid': { id: string; total: number } } }
 *
 * Once it has a member, `emit`, `on` and `waitForEvent` know names and payloads, and refuse other names.
 */
export interface Events {}

/** True while the app has declared no events. */
type Undeclared = [keyof Events] extends [never] ? true : false;

/** The event that a webhook's request becomes: it needs no declaration. */
type WebhookName = `webhook.${string}`;

export type EventName = Undeclared extends true ? string : (keyof Events & string) | WebhookName;

/** An event's payload as it arrives: through JSON. */
export type PayloadOf<Name extends string> = Name extends keyof Events
  ? Stored<Events[Name]>
  : Name extends WebhookName
    ? WebhookRequest
    : unknown;

/** What `emit` takes. `id`: emitted again with the same id, it is the same event. `at`: it is emitted then, not now. */
export type NewEvent<Name extends EventName = EventName> = Name extends unknown
  ? {
      event: Name;
      payload: Name extends keyof Events ? Events[Name] : Undeclared extends true ? unknown : PayloadOf<Name>;
      id?: string;
      at?: Date | string;
    }
  : never;

/** An event as Nelkap stored it. One word, `event`, holds its name everywhere: in `emit`, here, in the API. */
export type StoredEvent<Name extends string = string> = Name extends unknown
  ? {
      readonly id: string;
      readonly event: Name;
      readonly payload: PayloadOf<Name>;
      readonly createdAt: string;
    }
  : never;

/** What `emit` gives back. `created` is false where an event with that id was there already. */
export interface Emitted {
  readonly id: string;
  readonly event: string;
  readonly created: boolean;
  readonly payloadDiffers?: true;
}

/** The payload of a run that a schedule started: which, the time that was due, and the schedule's own payload, where it has one. */
export interface Tick<Payload = unknown> {
  readonly schedule: string;
  readonly time: string;
  readonly payload?: Payload;
}

/** The payload of a run that a webhook started: the request, as the server took it in. */
export interface WebhookRequest {
  /** The webhook's name: the last part of its path, `/hooks/{name}`. */
  readonly webhook: string;
  readonly method: string;
  /** The first value of each name. */
  readonly query: Record<string, string>;
  /** By names in lower case; `cookie`, `authorization` and `proxy-authorization` are left out. */
  readonly headers: Record<string, string>;
  /** The text as it came, byte for byte: what a sender's signature is over. Empty where it is not UTF-8. */
  readonly body: string;
  /** The bytes in base64, where they are not UTF-8; then `body` is empty. */
  readonly bodyBase64?: string;
  /** The body's value, where it is JSON. */
  readonly json?: unknown;
}
