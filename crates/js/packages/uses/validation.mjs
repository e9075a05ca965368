import validator from 'validator';
import Joi from 'joi';
import * as yup from 'yup';
import * as v from 'valibot';
export default async () => {
  const j = Joi.object({
    a: Joi.string().email().required(),
    n: Joi.number().integer().min(3),
    d: Joi.date(),
  });
  const y = yup.object({ a: yup.string().required(), n: yup.number().positive() });
  const s = v.object({ a: v.pipe(v.string(), v.email()), n: v.optional(v.number(), 3) });
  return [
    validator.isEmail('a@b.co'),
    validator.isURL('http://x'),
    validator.escape('<a>'),
    validator.isIBAN('DE89370400440532013000'),
    validator.isMobilePhone('+4915112345678', 'de-DE'),
    j.validate({ a: 'x', n: 1.5 }, { abortEarly: false }).error.details.map((d) => d.message),
    j.validate({ a: 'a@b.com', n: '4', d: '2024-01-01' }).value,
    await y.validate({ n: -1 }, { abortEarly: false }).catch((e) => e.errors),
    v.safeParse(s, { a: 'no' }).issues.map((i) => i.message),
    v.parse(s, { a: 'a@b.co' }),
  ];
};
