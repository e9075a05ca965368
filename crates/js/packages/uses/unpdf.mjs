import { PDFDocument, StandardFonts } from 'pdf-lib';
import { extractText, getDocumentProxy } from 'unpdf';
export default async () => {
  const made = await PDFDocument.create();
  const font = await made.embedFont(StandardFonts.Helvetica);
  made.addPage([300, 200]).drawText('Hello PDF world', { x: 20, y: 100, font, size: 18 });
  const document = await getDocumentProxy(new Uint8Array(await made.save()));
  return extractText(document, { mergePages: true });
};
