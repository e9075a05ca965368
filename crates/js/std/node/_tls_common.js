import { absent } from 'internal/absent';
import { SecureContext, createSecureContext } from 'node:tls';

export const translatePeerCertificate = absent(
  '_tls_common.translatePeerCertificate',
  'use getPeerCertificate of a socket of node:tls',
);
export { SecureContext, createSecureContext };
export default { SecureContext, createSecureContext, translatePeerCertificate };
