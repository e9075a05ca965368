import ExcelJS from 'exceljs';
export default async () => {
  const wb = new ExcelJS.Workbook();
  wb.created = new Date(0);
  wb.modified = new Date(0);
  const ws = wb.addWorksheet('S');
  ws.columns = [
    { header: 'A', key: 'a' },
    { header: 'B', key: 'b' },
  ];
  ws.addRow({ a: 1, b: 'x' });
  ws.addRow({ a: new Date(86400000), b: { formula: 'A2+1', result: 2 } });
  const buf = await wb.xlsx.writeBuffer();
  const wb2 = new ExcelJS.Workbook();
  await wb2.xlsx.load(buf);
  const rows = [];
  wb2.getWorksheet('S').eachRow((r) => rows.push(r.values.slice(1)));
  const csv = (await wb.csv.writeBuffer()).toString();
  return [rows, csv.split('\n').length];
};
