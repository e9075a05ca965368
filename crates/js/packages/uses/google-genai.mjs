import { GoogleGenAI } from '@google/genai';
export default async () => {
  const ai = new GoogleGenAI({ apiKey: 'k', httpOptions: { baseUrl: globalThis.servers.http } });
  const whole = await ai.models.generateContent({ model: 'm', contents: 'hi' });
  let text = '';
  for await (const part of await ai.models.generateContentStream({ model: 'm', contents: 'hi' })) text += part.text;
  return [whole.text, text];
};
