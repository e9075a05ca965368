import Ajv from 'ajv';
import addFormats from 'ajv-formats';
import { zodToJsonSchema } from 'zod-to-json-schema';
import { Type } from '@sinclair/typebox';
import { Value } from '@sinclair/typebox/value';
import { TypeCompiler } from '@sinclair/typebox/compiler';
import * as s from 'superstruct';
import * as t from 'io-ts';
import { isRight } from 'fp-ts/lib/Either.js';
import { type } from 'arktype';
import { z } from 'zod';
export default async () => {
  const ajv = addFormats.default(new Ajv.default({ allErrors: true }));
  const v = ajv.compile({
    type: 'object',
    properties: { e: { type: 'string', format: 'email' }, d: { type: 'string', format: 'date-time' } },
    required: ['e'],
  });
  v({ e: 'x', d: 'y' });
  const T = Type.Object({ a: Type.Number(), b: Type.Optional(Type.String({ minLength: 2 })) });
  const at = type({ name: 'string', age: 'number > 0' });
  return [
    v.errors.map((e) => e.message),
    v({ e: 'a@b.co' }),
    Value.Check(T, { a: 1 }),
    TypeCompiler.Compile(T).Check({ a: 'x' }),
    [...Value.Errors(T, { a: 1, b: 'x' })].map((e) => e.message),
    s.is({ a: 1 }, s.object({ a: s.number() })),
    isRight(t.type({ a: t.string }).decode({ a: 'x' })),
    at({ name: 'x', age: -1 }) instanceof type.errors,
    at({ name: 'x', age: 2 }),
    z.toJSONSchema?.(z.object({ a: z.string().email() })) ?? null,
  ];
};
