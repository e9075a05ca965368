import Anthropic from '@anthropic-ai/sdk';
export default async () => {
  const client = new Anthropic({ apiKey: 'k', baseURL: globalThis.servers.http, maxRetries: 0 });
  const given = { model: 'm', max_tokens: 10, messages: [{ role: 'user', content: 'hi' }] };
  const whole = await client.messages.create(given);
  const streamed = await client.messages.stream(given).finalText();
  return [whole.content, streamed];
};
