import { ClientRequest } from 'node:http';

export { ClientRequest };
export default { ClientRequest };
