import { graphql, buildSchema } from 'graphql';
import { createYoga, createSchema } from 'graphql-yoga';
import { GraphQLClient, gql } from 'graphql-request';
import DataLoader from 'dataloader';
import http from 'node:http';
export default async () => {
  const yoga = createYoga({
    schema: createSchema({
      typeDefs:
        'type Query { hi(n: String!): String } type Mutation { add(a: Int!): Int } type Subscription { tick: Int }',
      resolvers: {
        Query: { hi: (_, { n }) => `hi ${n}` },
        Mutation: { add: (_, { a }) => a + 1 },
        Subscription: {
          tick: {
            subscribe: async function* () {
              yield { tick: 1 };
              yield { tick: 2 };
            },
          },
        },
      },
    }),
    logging: false,
  });
  const s = await new Promise((r) => {
    const s = http.createServer(yoga).listen(0, '127.0.0.1', () => r(s));
  });
  const url = `http://127.0.0.1:${s.address().port}/graphql`;
  const c = new GraphQLClient(url);
  const a = await c.request(
    gql`
      query ($n: String!) {
        hi(n: $n)
      }
    `,
    { n: 'x' },
  );
  const e = await c.request('{ nope }').catch((e) => e.response.errors[0].message);

  const sse = await (
    await fetch(url, {
      method: 'POST',
      body: '{"query":"subscription { tick }"}',
      headers: { accept: 'text/event-stream', 'content-type': 'application/json' },
    })
  ).text();
  const dl = new DataLoader(async (k) => k.map((x) => x * 2));
  s.close();
  s.closeAllConnections();
  return [a, e, sse, await Promise.all([dl.load(1), dl.load(2)])];
};
