import bolt from '@slack/bolt';
import crypto from 'node:crypto';
export default async () => {
  const { App, ExpressReceiver } = bolt;
  const said = [];
  const receiver = new ExpressReceiver({ signingSecret: 's' });
  const app = new App({
    receiver,
    authorize: async () => ({ botToken: 'xoxb-1', botId: 'B', botUserId: 'U' }),
  });
  app.command('/hi', async ({ command, ack }) => {
    said.push(command.text);
    await ack(`hello ${command.text}`);
  });
  const server = await app.start({ port: 0, host: '127.0.0.1' });
  const { port } = server.address();
  const body = 'command=%2Fhi&text=you&team_id=T&user_id=U';
  const ts = Math.floor(Date.now() / 1000);
  const sig = 'v0=' + crypto.createHmac('sha256', 's').update(`v0:${ts}:${body}`).digest('hex');
  const post = (s) =>
    fetch(`http://127.0.0.1:${port}/slack/events`, {
      method: 'POST',
      body,
      headers: {
        'content-type': 'application/x-www-form-urlencoded',
        'x-slack-signature': s,
        'x-slack-request-timestamp': `${ts}`,
      },
    });
  const ok = await post(sig);
  const text = await ok.text();
  const bad = await post('v0=00');
  await app.stop();
  return [ok.status, text, bad.status, said];
};
