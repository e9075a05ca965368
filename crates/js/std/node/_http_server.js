import { STATUS_CODES, Server, ServerResponse, _connectionListener } from 'node:http';

export { STATUS_CODES, Server, ServerResponse, _connectionListener };
export default { STATUS_CODES, Server, ServerResponse, _connectionListener };
