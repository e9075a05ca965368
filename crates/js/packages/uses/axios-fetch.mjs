import axios from 'axios';
export default async () => {
  const { http } = globalThis.servers;
  const get = await axios.get(`${http}/json`, { params: { a: 1 }, adapter: 'fetch' });
  const post = await axios.post(`${http}/json`, { b: 2 }, { adapter: 'fetch' });
  return [get.data.query, post.data.body];
};
