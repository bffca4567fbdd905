/** A value that JSON holds as it is. */
export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };

type Primitive = string | number | boolean | null | undefined | void;
/** Types that JSON holds. Tested first: a recursive `JSONValue` (type-fest, Prisma, AI SDK) would not end otherwise. */
type JsonLike = Primitive | readonly JsonLike[] | { readonly [key: string]: JsonLike };
/** Those of them that come back as they are: no array holds undefined. */
type Unchanged = Kept | undefined | void;
type Kept = string | number | boolean | null | readonly Kept[] | { readonly [key: string]: Unchanged };
type AnyFunction = ((...args: never) => unknown) | (abstract new (...args: never) => unknown);
/** Objects whose contents JSON.stringify drops. Structural, so that neither DOM nor Node types are needed. */
type Opaque =
  | ReadonlyMap<unknown, unknown>
  | ReadonlySet<unknown>
  | WeakMap<WeakKey, unknown>
  | WeakSet<WeakKey>
  | PromiseLike<unknown>
  | RegExp
  | Error
  | ArrayBuffer
  | ArrayBufferView
  | Iterable<unknown>
  | AsyncIterable<unknown>;

/**
 * T as it comes back after JSON: a `Date` comes back a string, whatever has `toJSON` comes back as what that gives.
 * Names of interfaces are kept where nothing changes.
 */
export type Stored<T> = [T] extends [Json<T>] ? ([Json<T>] extends [T] ? T : Json<T>) : Json<T>;

type Json<T> = 0 extends 1 & T
  ? T // any
  : unknown extends T
    ? T // unknown stays unknown
    : T extends Unchanged
      ? T
      : T extends bigint | symbol | AnyFunction
        ? never
        : T extends { toJSON(...args: never): infer J }
          ? Json<J>
          : T extends readonly (infer E)[]
            ? List<T, E>
            : T extends Opaque
              ? never
              : { [K in keyof T as K extends symbol ? never : K]: Json<T[K]> };

/** Arrays apart from tuples: a mapped type looks into a recursive type at once, and would not end. */
type List<T extends readonly unknown[], E> = E[] extends T
  ? T extends unknown[]
    ? Item<E>[]
    : readonly Item<E>[]
  : { [K in keyof T]: Item<T[K]> };

/** What is undefined in an array comes back as null. */
type Item<T> = T extends undefined | void ? null : Json<T>;

/** `unknown` when T survives JSON, else a type that nothing is assignable to and whose name says where and why. */
export type Savable<T> = [T] extends [Json<T>]
  ? unknown
  : [T] extends [Check<T>]
    ? unknown
    : NotJson<[Where<T>] extends [never] ? 'a part more than four levels down' : Where<T>>;

declare const notJson: unique symbol;
/** Shown by the compiler: the value's part that JSON can't hold. */
export interface NotJson<Problem extends string> {
  readonly [notJson]: Problem;
}

type Check<T> = 0 extends 1 & T
  ? T
  : unknown extends T
    ? T
    : T extends JsonLike
      ? T
      : T extends bigint | symbol | AnyFunction
        ? never
        : T extends { toJSON(...args: never): infer J }
          ? [J] extends [Check<J>]
            ? T
            : never
          : T extends readonly unknown[]
            ? { [K in keyof T]: Check<T[K]> }
            : T extends Opaque
              ? never
              : { [K in keyof T as K extends symbol ? never : K]: Check<T[K]> };

type Kind<T> = T extends bigint
  ? 'a bigint (return a string)'
  : T extends symbol
    ? 'a symbol'
    : T extends AnyFunction
      ? 'a function or method (return plain data)'
      : T extends ReadonlyMap<unknown, unknown>
        ? 'a Map (return Object.fromEntries(map))'
        : T extends ReadonlySet<unknown>
          ? 'a Set (return [...set])'
          : T extends Error
            ? 'an Error (throw it, or return its message)'
            : T extends PromiseLike<unknown>
              ? 'a promise (await it)'
              : T extends ArrayBufferView
                ? 'an object that JSON empties (return plain data)'
                : T extends Iterable<unknown> | AsyncIterable<unknown>
                  ? 'an iterable (return an array of its items)'
                  : 'an object that JSON empties (return plain data)';

/** The first places where T is not JSON, three levels deep; only computed once the check has failed. */
type Where<T, Path extends string = 'result', Depth extends 0[] = []> = 0 extends 1 & T
  ? never
  : unknown extends T
    ? never
    : T extends JsonLike
      ? never
      : T extends bigint | symbol | AnyFunction
        ? `${Path} is ${Kind<T>}`
        : T extends { toJSON(...args: never): unknown }
          ? never
          : T extends readonly (infer E)[]
            ? Depth['length'] extends 4
              ? never
              : Where<E, `${Path}[]`, [...Depth, 0]>
            : T extends Opaque
              ? `${Path} is ${Kind<T>}`
              : Depth['length'] extends 4
                ? never
                : { [K in keyof T & string]-?: Where<T[K], `${Path}.${K}`, [...Depth, 0]> }[keyof T & string];
