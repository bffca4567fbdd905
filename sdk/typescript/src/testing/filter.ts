/**
 * The part of CEL that most filters are written in: `payload` and `event` with their members and elements, texts, numbers, true,
 * false, null and lists of them; `==`, `!=`, `<`, `<=`, `>`, `>=`, `in`, `&&`, `||`, `!`, parentheses; `has(…)`, `contains`,
 * `startsWith` and `endsWith`. It refuses what else there is in CEL, rather than to guess what a server would make of it.
 */

export interface Candidate {
  id: string;
  event: string;
  payload?: unknown;
}

/** What of CEL the kit does not evaluate. */
export class FilterError extends Error {
  override name = 'FilterError';
}

/** No match: a member that is missing, a comparison of what can't be compared. */
class NoValue extends Error {}

type Expression = (event: Candidate) => unknown;

/** Nesting of parentheses, lists and `!` that a filter may have. */
const DEPTH_MAX = 50;

/** Reads a filter. Throws a FilterError for what the kit does not evaluate. */
export function compile(text: string): (event: Candidate) => boolean {
  const expression = new Reader(text).read();
  return (event) => {
    try {
      return expression(event) === true;
    } catch (error) {
      if (error instanceof NoValue) return false;
      throw error;
    }
  };
}

const token =
  /\s*(?:(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.])|("(?:[^"\\\n]|\\["'\\])*"|'(?:[^'\\\n]|\\["'\\])*')|([A-Za-z_]\w*)|(&&|\|\||[=!<>]=|[<>!()[\],.-]))/y;

type Token = { kind: 'number' | 'text' | 'name' | 'sign' | 'end'; text: string };

class Reader {
  private readonly tokens: Token[] = [];
  private at = 0;
  private depth = 0;
  private readonly text: string;

  constructor(text: string) {
    this.text = text;
    token.lastIndex = 0;
    const source = text.trimEnd();
    while (token.lastIndex < source.length) {
      const from = token.lastIndex;
      const found = token.exec(source);
      if (found === null) throw this.refusal(source.slice(from, from + 20).trim());
      const kinds = ['number', 'text', 'name', 'sign'] as const;
      const at = kinds.findIndex((_, group) => found[group + 1] !== undefined);
      this.tokens.push({ kind: kinds[at] ?? 'sign', text: found[at + 1] ?? '' });
    }
  }

  read(): Expression {
    const expression = this.or();
    if (this.next.kind !== 'end') throw this.refusal(this.next.text);
    return expression;
  }

  private get next(): Token {
    return this.tokens[this.at] ?? { kind: 'end', text: '' };
  }

  private take(text: string): boolean {
    const isIt = this.next.text === text && (this.next.kind === 'sign' || this.next.kind === 'name');
    if (isIt) this.at += 1;
    return isIt;
  }

  private expect(text: string): void {
    if (!this.take(text)) throw this.refusal(this.next.text);
  }

  private refusal(part: string): FilterError {
    const where = part === '' ? 'its end' : `'${part}'`;
    return new FilterError(
      `the kit does not evaluate the filter "${this.text}", for ${where} in it: it knows members of payload and event, plain values, ` +
        'comparisons, in, &&, ||, !, has, contains, startsWith and endsWith. Say in the option `filters` what it gives: ' +
        `filters: { ${JSON.stringify(this.text)}: (event) => … }`,
    );
  }

  private or(): Expression {
    let left = this.and();
    while (this.take('||')) left = either(left, this.and(), true);
    return left;
  }

  private and(): Expression {
    let left = this.comparison();
    while (this.take('&&')) left = either(left, this.comparison(), false);
    return left;
  }

  private comparison(): Expression {
    const left = this.unary();
    const sign = ['==', '!=', '<=', '>=', '<', '>', 'in'].find((each) => this.take(each));
    if (sign === undefined) return left;
    const right = this.unary();
    if (sign === 'in') return (event) => isIn(left(event), right(event));
    if (sign === '==') return (event) => isSame(left(event), right(event));
    if (sign === '!=') return (event) => !isSame(left(event), right(event));
    return (event) => {
      const order = compare(left(event), right(event));
      return sign.startsWith('<')
        ? order < 0 || (sign === '<=' && order === 0)
        : order > 0 || (sign === '>=' && order === 0);
    };
  }

  private unary(): Expression {
    if (++this.depth > DEPTH_MAX) throw this.refusal('its depth');
    try {
      if (!this.take('!')) return this.members();
      const of = this.unary();
      return (event) => !truth(of(event));
    } finally {
      this.depth -= 1;
    }
  }

  private members(): Expression {
    let of = this.primary();
    for (;;) {
      const base = of;
      if (this.take('.')) {
        const name = this.name();
        of = this.next.text === '(' ? this.method(base, name) : (event) => member(base(event), name);
      } else if (this.take('[')) {
        const key = this.or();
        this.expect(']');
        of = (event) => member(base(event), key(event));
      } else return of;
    }
  }

  private method(base: Expression, name: string): Expression {
    if (name !== 'contains' && name !== 'startsWith' && name !== 'endsWith') throw this.refusal(`${name}(`);
    const does = { contains: 'includes', startsWith: 'startsWith', endsWith: 'endsWith' } as const;
    this.expect('(');
    const argument = this.or();
    this.expect(')');
    return (event) => {
      const [text, part] = [base(event), argument(event)];
      if (typeof text !== 'string' || typeof part !== 'string') throw new NoValue();
      return text[does[name]](part);
    };
  }

  private primary(): Expression {
    const { kind, text } = this.next;
    if (this.take('(')) {
      const of = this.or();
      this.expect(')');
      return of;
    }
    if (this.take('[')) return this.list();
    if (this.take('-')) return this.number(-1);
    if (kind === 'number') return this.number(1);
    if (kind === 'text') {
      this.at += 1;
      const value = text.slice(1, -1).replace(/\\(.)/g, '$1');
      return () => value;
    }
    if (kind !== 'name') throw this.refusal(text);
    return this.named(this.name());
  }

  private number(sign: number): Expression {
    const { kind, text } = this.next;
    if (kind !== 'number') throw this.refusal(text);
    this.at += 1;
    const value = sign * Number(text);
    return () => value;
  }

  private name(): string {
    const { kind, text } = this.next;
    if (kind !== 'name') throw this.refusal(text);
    this.at += 1;
    return text;
  }

  private named(name: string): Expression {
    switch (name) {
      case 'true':
        return () => true;
      case 'false':
        return () => false;
      case 'null':
        return () => null;
      case 'payload':
        return ({ payload }) => payload ?? null;
      case 'event':
        return ({ id, event, payload }) => ({ id, event, payload: payload ?? null });
      case 'has':
        return this.has();
      default:
        throw this.refusal(name);
    }
  }

  private has(): Expression {
    this.expect('(');
    const of = this.members();
    this.expect(')');
    return (event) => {
      try {
        of(event);
        return true;
      } catch (error) {
        if (error instanceof NoValue) return false;
        throw error;
      }
    };
  }

  private list(): Expression {
    const of: Expression[] = [];
    while (!this.take(']')) {
      if (of.length > 0) this.expect(',');
      of.push(this.or());
    }
    return (event) => of.map((each) => each(event));
  }
}

/** `&&` and `||`: a side that decides does so even where the other has no value. */
function either(left: Expression, right: Expression, decides: boolean): Expression {
  return (event) => {
    const sides = [left, right].map((side) => {
      try {
        return truth(side(event));
      } catch (error) {
        if (error instanceof NoValue) return undefined;
        throw error;
      }
    });
    if (sides.includes(decides)) return decides;
    if (sides.includes(undefined)) throw new NoValue();
    return !decides;
  };
}

function truth(value: unknown): boolean {
  if (typeof value !== 'boolean') throw new NoValue();
  return value;
}

function member(of: unknown, key: unknown): unknown {
  const isThere =
    typeof of === 'object' &&
    of !== null &&
    (Array.isArray(of) ? typeof key === 'number' : typeof key === 'string') &&
    Object.hasOwn(of, key as PropertyKey);
  if (!isThere) throw new NoValue();
  return (of as Record<PropertyKey, unknown>)[key as PropertyKey];
}

function isIn(value: unknown, list: unknown): boolean {
  if (Array.isArray(list)) return list.some((each) => isSame(value, each));
  if (typeof list !== 'object' || list === null || typeof value !== 'string') throw new NoValue();
  return Object.hasOwn(list, value);
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== 'object' || typeof other !== 'object' || one === null || other === null)
    return one === other;
  const [keys, others] = [Object.keys(one), Object.keys(other)];
  return (
    Array.isArray(one) === Array.isArray(other) &&
    keys.length === others.length &&
    keys.every((key) => Object.hasOwn(other, key) && isSame(one[key as never], other[key as never]))
  );
}

function compare(one: unknown, other: unknown): number {
  const isComparable =
    (typeof one === 'number' && typeof other === 'number') ||
    (typeof one === 'string' && typeof other === 'string');
  if (!isComparable) throw new NoValue();
  return one < other ? -1 : one > other ? 1 : 0;
}

/** Whether an event holds the values of a `match`. A path that leads nowhere holds nothing, not null. */
export function isMatch(match: Readonly<Record<string, unknown>>, event: Candidate): boolean {
  return Object.entries(match).every(([path, value]) => {
    let of: unknown = event.payload;
    for (const part of path.split('.').slice(1)) {
      if (typeof of !== 'object' || of === null || !Object.hasOwn(of, part)) return false;
      of = (of as Record<string, unknown>)[part];
    }
    return path.split('.')[0] === 'payload' && of === value;
  });
}
