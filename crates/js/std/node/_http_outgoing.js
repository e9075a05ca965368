import { OutgoingMessage, validateHeaderName, validateHeaderValue } from 'node:http';

export { OutgoingMessage, validateHeaderName, validateHeaderValue };
export default { OutgoingMessage, validateHeaderName, validateHeaderValue };
