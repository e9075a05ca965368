// Calls a daemon as the libraries of services sign calls, or as they accept them: node libraries.mjs PROGRAM TOOLS
//
// For each sender: the library signs a call, or says that the call which was signed here is genuine. The daemon has to accept
// the same call, and to refuse it with another body and with another secret.
import { spawn } from 'node:child_process';
import { createHash, createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [program, tools] = process.argv.slice(2).map((path) => resolve(path));
const required = createRequire(join(tools, 'package.json'));
const load = async (name) => import(pathToFileURL(required.resolve(name)));
// What a package exports for `import` alone, or not at all.
const inside = async (path) => import(pathToFileURL(join(tools, 'node_modules', path)));

const SECRET = 'c2VjcmV0IG9mIGEgc2VuZGVy';
const WHSEC = `whsec_${SECRET}`;
const URL_OF_CALL = 'https://hooks.example/plugins/webhook/in';
const now = Math.floor(Date.now() / 1000);
const hmac = (encoding, text, secret = SECRET, algorithm = 'sha256') =>
  createHmac(algorithm, secret).update(text).digest(encoding);
const check = (genuine) => {
  if (!genuine) throw new Error('the library takes the call for a forgery');
};
const text = JSON.stringify({
  id: 'evt_1',
  event_id: 'evt_1',
  type: 'customer.created',
  n: 1.5,
  name: 'Zoë 😀',
});

const senders = {
  github: {
    library: '@octokit/webhooks-methods',
    async call() {
      const { sign } = await inside('@octokit/webhooks-methods/dist-node/index.js');
      return { body: text, headers: { 'X-Hub-Signature-256': await sign(SECRET, text) } };
    },
  },
  stripe: {
    library: 'stripe',
    async call() {
      const { default: Stripe } = await load('stripe');
      const { webhooks } = new Stripe('sk_test_1');
      const signature = webhooks.generateTestHeaderString({ payload: text, secret: SECRET });
      return { body: text, headers: { 'Stripe-Signature': signature } };
    },
  },
  svix: {
    library: 'svix',
    secret: WHSEC,
    async call() {
      const { Webhook } = await load('svix');
      const signature = new Webhook(WHSEC).sign('msg_1', new Date(now * 1000), text);
      return {
        body: text,
        headers: { 'svix-id': 'msg_1', 'svix-timestamp': `${now}`, 'svix-signature': signature },
      };
    },
  },
  standard: {
    library: 'standardwebhooks',
    secret: WHSEC,
    async call() {
      const { Webhook } = await load('standardwebhooks');
      const signature = new Webhook(WHSEC).sign('msg_1', new Date(now * 1000), text);
      return {
        body: text,
        headers: { 'webhook-id': 'msg_1', 'webhook-timestamp': `${now}`, 'webhook-signature': signature },
      };
    },
  },
  resend: {
    library: 'resend',
    secret: WHSEC,
    async call() {
      const { Resend } = await load('resend');
      const signature = `v1,${hmac('base64', `msg_1.${now}.${text}`, Buffer.from(SECRET, 'base64'))}`;
      const headers = { id: 'msg_1', timestamp: `${now}`, signature };
      check(new Resend('re_1').webhooks.verify({ payload: text, headers, webhookSecret: WHSEC }));
      return {
        body: text,
        headers: { 'svix-id': 'msg_1', 'svix-timestamp': `${now}`, 'svix-signature': signature },
      };
    },
  },
  clerk: {
    library: '@clerk/backend',
    secret: WHSEC,
    async call() {
      const { verifyWebhook } = await load('@clerk/backend/webhooks');
      const signature = `v1,${hmac('base64', `msg_1.${now}.${text}`, Buffer.from(SECRET, 'base64'))}`;
      const headers = { 'svix-id': 'msg_1', 'svix-timestamp': `${now}`, 'svix-signature': signature };
      const request = new Request(URL_OF_CALL, { method: 'POST', headers, body: text });
      check(await verifyWebhook(request, { signingSecret: WHSEC }));
      return { body: text, headers };
    },
  },
  twilio: {
    library: 'twilio',
    verify: `{ scheme: twilio, url: '${URL_OF_CALL}' }`,
    async call() {
      const { default: twilio } = await load('twilio');
      const fields = { CallSid: 'CA1', Body: 'Zoë & co', From: '+14158675309' };
      const signature = twilio.getExpectedTwilioSignature(SECRET, URL_OF_CALL, fields);
      return {
        body: new URLSearchParams(fields).toString(),
        headers: { 'X-Twilio-Signature': signature, 'Content-Type': 'application/x-www-form-urlencoded' },
      };
    },
  },
  linear: {
    library: '@linear/sdk',
    async call() {
      const { LinearWebhookClient } = await load('@linear/sdk/webhooks');
      const body = JSON.stringify({ action: 'create', type: 'Issue', webhookTimestamp: now * 1000 });
      const signature = hmac('hex', body);
      check(new LinearWebhookClient(SECRET).verify(Buffer.from(body), signature, now * 1000));
      return { body, headers: { 'Linear-Signature': signature, 'Linear-Delivery': 'D-1' } };
    },
  },
  sendgrid: (() => {
    const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const key = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    const other = generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey;
    return {
      library: '@sendgrid/eventwebhook',
      secret: key,
      other: other.export({ type: 'spki', format: 'der' }).toString('base64'),
      async call() {
        const { EventWebhook } = await load('@sendgrid/eventwebhook');
        const body = '[{"event":"open"},{"event":"bounce"}]\r\n';
        const signature = sign('sha256', Buffer.from(`${now}${body}`), privateKey).toString('base64');
        const library = new EventWebhook();
        check(library.verifySignature(library.convertPublicKeyToECDSA(key), body, signature, `${now}`));
        return {
          body,
          headers: {
            'X-Twilio-Email-Event-Webhook-Signature': signature,
            'X-Twilio-Email-Event-Webhook-Timestamp': `${now}`,
          },
        };
      },
    };
  })(),
  square: {
    library: 'square',
    verify: `{ scheme: square, url: '${URL_OF_CALL}' }`,
    async call() {
      const { WebhooksHelper } = await load('square');
      const signature = hmac('base64', URL_OF_CALL + text);
      const options = { requestBody: text, signatureHeader: signature, signatureKey: SECRET };
      check(await WebhooksHelper.verifySignature({ ...options, notificationUrl: URL_OF_CALL }));
      return { body: text, headers: { 'x-square-hmacsha256-signature': signature } };
    },
  },
  hubspot: {
    library: '@hubspot/api-client',
    verify: `{ scheme: hubspot, url: '${URL_OF_CALL}' }`,
    async call() {
      const { Signature } = await load('@hubspot/api-client');
      const body = '[{"eventId":1,"subscriptionType":"contact.creation"}]';
      const options = { clientSecret: SECRET, requestBody: body, url: URL_OF_CALL, timestamp: now * 1000 };
      const signature = Signature.getSignature('POST', 'v3', options);
      return {
        body,
        headers: { 'X-HubSpot-Signature-v3': signature, 'X-HubSpot-Request-Timestamp': `${now * 1000}` },
      };
    },
  },
  paddle: {
    library: '@paddle/paddle-node-sdk',
    async call() {
      const { Paddle } = await load('@paddle/paddle-node-sdk');
      const signature = `ts=${now};h1=${hmac('hex', `${now}:${text}`)}`;
      check(await new Paddle('pdl_1').webhooks.isSignatureValid(text, SECRET, signature));
      return { body: text, headers: { 'Paddle-Signature': signature } };
    },
  },
  discord: (() => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const hex = (key) => key.export({ type: 'spki', format: 'der' }).subarray(-32).toString('hex');
    return {
      library: 'discord-interactions',
      secret: hex(publicKey),
      other: hex(generateKeyPairSync('ed25519').publicKey),
      async call() {
        const { verifyKey } = await load('discord-interactions');
        const body = '{"id":"1","type":2,"data":{"name":"deploy"}}';
        const signature = sign(null, Buffer.from(`${now}${body}`), privateKey).toString('hex');
        check(await verifyKey(body, signature, `${now}`, hex(publicKey)));
        return { body, headers: { 'X-Signature-Ed25519': signature, 'X-Signature-Timestamp': `${now}` } };
      },
    };
  })(),
  slack: {
    library: '@slack/bolt',
    async call() {
      const { verifySlackRequest } = await inside('@slack/bolt/dist/receivers/verify-request.js');
      const signature = `v0=${hmac('hex', `v0:${now}:${text}`)}`;
      const headers = { 'x-slack-signature': signature, 'x-slack-request-timestamp': now };
      verifySlackRequest({ signingSecret: SECRET, body: text, headers });
      return { body: text, headers };
    },
  },
  shopify: {
    library: '@shopify/shopify-api',
    async call() {
      const { validateHmacString } = await inside(
        '@shopify/shopify-api/dist/esm/lib/utils/hmac-validator.mjs',
      );
      await inside('@shopify/shopify-api/dist/esm/adapters/node/index.mjs');
      const signature = hmac('base64', text);
      check(await validateHmacString({ apiSecretKey: SECRET }, text, signature, 'base64'));
      return { body: text, headers: { 'X-Shopify-Hmac-Sha256': signature } };
    },
  },
  telegram: {
    library: 'grammy (of its community)',
    uncovered: true,
    async call() {
      const { Bot, webhookCallback } = await load('grammy');
      const botInfo = { id: 1, is_bot: true, first_name: 'b', username: 'b_bot' };
      const body =
        '{"update_id":1,"message":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"},"text":"hi"}}';
      const headers = { 'X-Telegram-Bot-Api-Secret-Token': SECRET, 'Content-Type': 'application/json' };
      const handle = webhookCallback(new Bot('1:t', { botInfo }), 'std/http', { secretToken: SECRET });
      check((await handle(new Request(URL_OF_CALL, { method: 'POST', headers, body }))).status === 200);
      return { body, headers };
    },
  },
  netlify: {
    library: 'jose (of no service; for the JSON Web Signature)',
    async call() {
      const { SignJWT } = await load('jose');
      const claims = { iss: 'netlify', sha256: createHash('sha256').update(text).digest('hex') };
      const made = new SignJWT(claims).setProtectedHeader({ alg: 'HS256', typ: 'JWT' });
      return {
        body: text,
        headers: { 'X-Webhook-Signature': await made.sign(new TextEncoder().encode(SECRET)) },
      };
    },
  },
  meta: {
    library: 'whatsapp-api-js (of its community)',
    async call() {
      const { WhatsAppAPI } = await load('whatsapp-api-js');
      const body = JSON.stringify({ object: 'whatsapp_business_account', entry: [] });
      const signature = `sha256=${hmac('hex', body)}`;
      const library = new WhatsAppAPI({ token: 't', appSecret: SECRET, v: 'v24.0' });
      check(await library.verifyRequestSignature(body, signature));
      return { body, headers: { 'X-Hub-Signature-256': signature } };
    },
  },
};

const folder = mkdtempSync(join(tmpdir(), 'ostler-senders-'));
const failed = [];
let daemon;
try {
  const vault = {};
  writeFileSync(
    join(folder, 'config.json'),
    JSON.stringify({ port: 0, plugins: [{ name: '@ostler/echo' }, { name: '@ostler/webhook' }] }),
  );
  const endpoints = join(folder, 'webhooks');
  mkdirSync(endpoints);
  for (const [name, { verify = name, secret = SECRET, other = 'b3RoZXIgc2VjcmV0IG9mIGl0' }] of Object.entries(
    senders,
  )) {
    vault[`host:${name}`] = secret;
    vault[`host:other-${name}`] = secret.startsWith('whsec_') ? `whsec_${other}` : other;
    for (const id of [name, `other-${name}`]) {
      writeFileSync(
        join(endpoints, `${id}.md`),
        `---\nid: ${id}\nautomation: true\nsecret: host:${id}\nverify: ${verify}\n---\n`,
      );
    }
  }
  writeFileSync(join(folder, 'vault.json'), JSON.stringify(vault), { mode: 0o600 });
  daemon = spawn(program, ['--config-file', join(folder, 'config.json')], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, XDG_STATE_HOME: join(folder, 'state') },
  });
  const address = await new Promise((found, lost) => {
    let said = '';
    daemon.stdout.on('data', (chunk) => {
      said += chunk;
      const match = /^http on (http:\/\/\S+)$/m.exec(said) ?? /ws:\/\/([0-9.]+:[0-9]+)/.exec(said);
      if (match) found(match[1].startsWith('http') ? new URL(match[1]).origin : `http://${match[1]}`);
    });
    daemon.on('exit', (code) => lost(new Error(`the daemon ended with ${code}: ${said}`)));
  });
  const post = async (id, body, headers) => {
    const call = { method: 'POST', body, headers: { 'content-type': 'application/json', ...lower(headers) } };
    return (await fetch(`${address}/plugins/webhook/${id}`, call)).status;
  };
  for (const [name, { library, call, uncovered }] of Object.entries(senders)) {
    try {
      const { body, headers } = await call();
      const statuses = [
        await post(name, body, headers),
        await post(name, `${body} `, headers),
        await post(`other-${name}`, body, headers),
      ];
      const good = [200, 202].includes(statuses[0]) && statuses[2] === 401;
      if (!good || (!uncovered && statuses[1] !== 401)) throw new Error(`answers ${statuses.join(', ')}`);
      console.log(`senders: ${name}: ${library}`);
    } catch (error) {
      failed.push(name);
      console.log(`senders: ${name}: ${library}: FAILED: ${error.stack ?? error}`);
    }
  }
} finally {
  if (daemon && daemon.exitCode === null && daemon.signalCode === null) {
    const ended = new Promise((done) => daemon.on('exit', done));
    daemon.kill();
    await ended;
  }
  rmSync(folder, { recursive: true, force: true });
}
console.log(`senders: ${Object.keys(senders).length - failed.length} of ${Object.keys(senders).length}`);
process.exit(failed.length ? 1 : 0);

function lower(headers) {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]),
  );
}
