import ky from 'ky';
import superagent from 'superagent';
import crossFetch from 'cross-fetch';
import { HttpsProxyAgent } from 'https-proxy-agent';
import { EventSource } from 'eventsource';
export default async () => {
  const { http } = globalThis.servers;
  const first = await ky(`${http}/json?a=1`).json();
  const second = await superagent.post(`${http}/json`).send({ b: 2 }).query({ c: 3 });
  const third = await (await crossFetch(`${http}/json?d=4`)).json();
  const source = new EventSource(`${http}/events`);
  const greeting = await new Promise((resolve) => source.addEventListener('greet', (event) => resolve([event.data, event.lastEventId])));
  source.close();
  return [first.query, second.body.body, second.body.query, third.query, greeting, typeof new HttpsProxyAgent('http://127.0.0.1:1').connect];
};
