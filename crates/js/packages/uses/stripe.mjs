import Stripe from 'stripe';
export default async () => {
  const { hostname, port } = new URL(globalThis.servers.http);
  const stripe = new Stripe('sk_test_1', { host: hostname, port: Number(port), protocol: 'http', maxNetworkRetries: 0, telemetry: false });
  const made = await stripe.customers.create({ email: 'a@b.c' });
  const event = Stripe.webhooks.generateTestHeaderString({ payload: '{"id":"e"}', secret: 's', timestamp: Math.floor(Date.now() / 1000) });
  return [made.id, made.email, stripe.webhooks.constructEvent('{"id":"e"}', event, 's').id];
};
