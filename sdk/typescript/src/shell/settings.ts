import type { Log } from '../log.js';
import { consoleLog, guarded } from '../log.js';
import { Destination } from './destination.js';
import { variable } from './environment.js';
import type { Address } from './http.js';
import { shared } from './process.js';

/** Where the server is, outside a call, when nobody says. */
const DEFAULT_URL = 'http://127.0.0.1:6355';

export interface NelkapOptions {
  /** The app's name; else NELKAP_APP, else `app`. */
  app?: string;
  /** The server's address; else NELKAP_URL, else the one that calls, else http://127.0.0.1:6355. */
  url?: string;
  /** Authenticates to the server; else NELKAP_API_KEY. */
  apiKey?: string;
  /** Calls must be signed with it; else NELKAP_SIGNING_KEY. */
  signingKey?: string;
  /** The key before it, while keys change; else NELKAP_SIGNING_KEY_PREVIOUS. */
  signingKeyPrevious?: string;
  /** Sends requests in place of the global `fetch`. */
  fetch?: typeof fetch;
  /** Where messages go; else the console. */
  logger?: Log;
}

/** A client's options over its environment, read at each use. */
export class Settings {
  private readonly options: NelkapOptions;

  constructor(options: NelkapOptions) {
    this.options = options;
  }

  get app(): string {
    return this.options.app ?? variable('NELKAP_APP') ?? 'app';
  }

  get url(): string | undefined {
    return this.options.url ?? variable('NELKAP_URL');
  }

  get signingKeys(): string[] {
    const { signingKey, signingKeyPrevious } = this.options;
    const keys = [
      signingKey ?? variable('NELKAP_SIGNING_KEY'),
      signingKeyPrevious ?? variable('NELKAP_SIGNING_KEY_PREVIOUS'),
    ];
    return keys.filter((key) => key !== undefined);
  }

  /** Anything but exactly `1` is no. */
  get isDev(): boolean {
    return variable('NELKAP_DEV') === '1';
  }

  get log(): Log {
    return guarded(this.options.logger ?? consoleLog);
  }

  /** Where requests outside a call go. */
  get address(): Address {
    return this.at(this.url ?? DEFAULT_URL, true);
  }

  /** Where a call's messages go (C9). The key goes only to the configured address, or one from a signed call. */
  destination(calledFrom: string | undefined, isSigned: boolean): Destination {
    const url = this.url ?? calledFrom ?? DEFAULT_URL;
    const address = this.at(url, isSigned || this.url !== undefined);
    const process = shared();
    const key = JSON.stringify([url, address.apiKey ?? '', this.fetchNumber(address.fetch)]);
    let destination = process.destinations.get(key);
    if (destination === undefined) {
      destination = new Destination(process, key, address, this.log);
      process.destinations.set(key, destination);
    }
    return destination;
  }

  private at(url: string, isTrusted: boolean): Address {
    const apiKey = isTrusted ? (this.options.apiKey ?? variable('NELKAP_API_KEY')) : undefined;
    return { url, apiKey, fetch: this.options.fetch ?? globalThis.fetch };
  }

  private fetchNumber(of: typeof fetch): number {
    const process = shared();
    let number = process.fetches.get(of);
    if (number === undefined) process.fetches.set(of, (number = ++process.fetchCount));
    return number;
  }
}
