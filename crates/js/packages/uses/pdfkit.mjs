import PDFDocument from 'pdfkit';
export default async () => {
  const d = new PDFDocument({ compress: false });
  const parts = [];
  d.on('data', (c) => parts.push(c));
  const done = new Promise((r) => d.on('end', r));
  d.fontSize(20).text('Hello');
  d.addPage().rect(1, 2, 3, 4).fill('red');
  d.end();
  await done;
  const b = Buffer.concat(parts);
  return [b.subarray(0, 8).toString('latin1'), b.includes('/Count 2'), b.length > 1000];
};
