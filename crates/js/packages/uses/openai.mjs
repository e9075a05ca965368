import OpenAI from 'openai';
export default async () => {
  const client = new OpenAI({ apiKey: 'k', baseURL: `${globalThis.servers.http}/v1`, maxRetries: 0 });
  const messages = [{ role: 'user', content: 'hi' }];
  const whole = await client.chat.completions.create({ model: 'm', messages });
  let text = '';
  for await (const part of await client.chat.completions.create({ model: 'm', messages, stream: true })) text += part.choices[0].delta.content;
  return [whole.choices[0].message.content, whole.usage, text];
};
