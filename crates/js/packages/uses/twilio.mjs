import twilio from 'twilio';
import http from 'node:http';
export default async () => {
  const client = twilio('AC' + '0'.repeat(32), 'token');
  const m = new twilio.twiml.VoiceResponse();
  m.say({ voice: 'alice' }, 'hi <there>');
  m.gather({ numDigits: 1 }).say('x');
  const sig = twilio.getExpectedTwilioSignature('token', 'https://a.test/x', { a: '1', b: '2' });
  return [
    m.toString(),
    sig,
    twilio.validateRequest('token', sig, 'https://a.test/x', { a: '1', b: '2' }),
    typeof client.messages.create,
    new twilio.jwt.AccessToken('AC1', 'SK1', 'sec', { identity: 'u' }).toJwt().split('.').length,
  ];
};
