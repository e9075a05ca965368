import { PDFDocument, StandardFonts, rgb } from 'pdf-lib';
export default async () => {
  const doc = await PDFDocument.create();
  doc.setCreationDate(new Date(0));
  doc.setModificationDate(new Date(0));
  const font = await doc.embedFont(StandardFonts.Helvetica);
  const page = doc.addPage([200, 200]);
  page.drawText('Hello päge', { x: 10, y: 100, size: 20, font, color: rgb(1, 0, 0) });
  const bytes = await doc.save();
  const again = await PDFDocument.load(bytes);
  return [
    bytes.length,
    again.getPageCount(),
    again.getPage(0).getSize(),
    font.widthOfTextAtSize('Hello', 12),
    Buffer.from(bytes.slice(0, 8)).toString('latin1'),
  ];
};
