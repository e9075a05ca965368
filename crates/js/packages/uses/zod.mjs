import { z } from 'zod';
export default async () => {
  const schema = z.object({ a: z.number().min(1), b: z.string().email().optional(), c: z.array(z.enum(['x', 'y'])) });
  return [schema.parse({ a: 2, c: ['x'] }), schema.safeParse({ a: 0, b: 'no', c: ['z'] }).error.issues.map(({ path, code }) => [path, code]), z.toJSONSchema(schema)];
};
