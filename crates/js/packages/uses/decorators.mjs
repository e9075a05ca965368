import 'reflect-metadata';
import { Container, injectable, inject } from 'inversify';
import { initTRPC, TRPCError } from '@trpc/server';
import { createHTTPServer } from '@trpc/server/adapters/standalone';
import { createTRPCClient, httpBatchLink, TRPCClientError } from '@trpc/client';
import tar from 'tar-stream';
import { z } from 'zod';
export default async () => {
  class Dep {
    v = 7;
  }
  injectable()(Dep);
  class Svc {
    constructor(d) {
      this.d = d;
    }
  }
  injectable()(Svc);
  inject(Dep)(Svc, undefined, 0);
  const c = new Container();
  c.bind(Dep).toSelf().inSingletonScope();
  c.bind(Svc).toSelf();
  const t = initTRPC.create();
  const router = t.router({
    hi: t.procedure.input(z.string()).query(({ input }) => `hi ${input}`),
    bad: t.procedure.mutation(() => {
      throw new TRPCError({ code: 'BAD_REQUEST', message: 'no' });
    }),
  });
  const server = createHTTPServer({ router });
  await new Promise((r) => server.listen(0, '127.0.0.1', r));
  const client = createTRPCClient({
    links: [httpBatchLink({ url: `http://127.0.0.1:${server.address().port}` })],
  });
  const both = await Promise.all([client.hi.query('a'), client.hi.query('b')]);
  const e = await client.bad.mutate().catch((e) => [e instanceof TRPCClientError, e.message]);
  server.close();
  server.closeAllConnections?.();
  const pack = tar.pack();
  pack.entry({ name: 'a.txt', mtime: new Date(0) }, 'hello');
  pack.finalize();
  const ex = tar.extract();
  const got = [];
  ex.on('entry', (h, st, next) => {
    let b = '';
    st.on('data', (d) => (b += d)).on('end', () => {
      got.push([h.name, b]);
      next();
    });
  });
  await new Promise((r, j) => pack.pipe(ex).on('finish', r).on('error', j));
  return [c.get(Svc).d.v, both, e, got];
};
