import { WebClient } from '@slack/web-api';
export default async () => {
  const client = new WebClient('xoxb-1', { slackApiUrl: `${globalThis.servers.http}/slack/`, retryConfig: { retries: 0 } });
  const sent = await client.chat.postMessage({ channel: 'C1', text: 'hi' });
  return [sent.ok, sent.ts];
};
