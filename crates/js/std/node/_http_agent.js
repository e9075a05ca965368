import { Agent, globalAgent } from 'node:http';

export { Agent, globalAgent };
export default { Agent, globalAgent };
