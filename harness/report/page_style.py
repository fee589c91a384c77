"""The page's style sheet: a laptop's screen, paper, and nothing from the network."""

STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.question { font-size: 1.1rem; font-weight: 600; margin: 0; }
.quiet { color: #555; font-size: .85rem; }
.warning { color: #8a4b00; }
h3 { font-size: .95rem; margin: 1.2rem 0 .3rem; }
ul { margin: .5rem 0; }
.remark li:first-child { font-weight: 600; }
ul { padding-left: 1.2rem; }
code { font-size: .85rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .8rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem .2rem 0; text-align: left; vertical-align: bottom; }
th { border-bottom: 1.5px solid #1a1a1a; max-width: 9rem; }
.measured th { overflow-wrap: anywhere; } .measured td:first-child { min-width: 12rem; }
th small { font-weight: 400; color: #555; }
td.number, th.number { text-align: right; }
td.number { white-space: pre; }
tbody tr:nth-child(even) { background: #f5f5f5; }
tr.better td { color: #006b4f; } tr.worse td, tr.failed td { color: #a84300; } tr.baseline td { font-weight: 600; }
tr.group th { border-bottom: 1px solid #bbb; padding-top: .7rem; font-style: italic; max-width: none; }
tr.group { background: #fff !important; }
tr.trivial td { color: #666; }
figure { margin: 0; break-inside: avoid; }
figure img { width: 100%; height: auto; }
figcaption { color: #555; font-size: .85rem; }
@media print {
  @page { margin: 14mm; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .wide { overflow: visible; }
  .measured td:first-child { min-width: 8rem; }
  table { font-size: 7.5pt; } thead { display: table-row-group; }
  h2, h3 { break-after: avoid; } tr { break-inside: avoid; }
  tbody tr:nth-child(even) { background: none; } tbody td { border-bottom: .5px solid #ddd; }
  figure img { max-height: 235mm; width: auto; max-width: 100%; display: block; margin: 0 auto; }
}
"""
