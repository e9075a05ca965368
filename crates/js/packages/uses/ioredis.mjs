import Redis from 'ioredis';
export default async () => {
  const redis = new Redis({ host: '127.0.0.1', port: globalThis.servers.redis });
  const answer = [await redis.set('io', 'value'), await redis.get('io'), await redis.get('none'), await redis.pipeline().set('n', '1').incr('n').exec(), await redis.del('io', 'n').then(() => 'deleted')];
  redis.disconnect();
  return answer;
};
