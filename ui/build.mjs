// Builds the page into the crate that embeds it: ui/src -> crates/rest/page.
//
//   node build.mjs           build
//   node build.mjs --check   fail if the built files are not those of the sources

import { build } from "esbuild";
import { readFileSync, writeFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "crates", "rest", "page");

const bundle = await build({
  entryPoints: { app: join(here, "src/main.tsx"), style: join(here, "src/style.css") },
  outdir: out,
  bundle: true,
  minify: true,
  write: false,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { "process.env.NODE_ENV": '"production"' },
  // Absolute paths must not change the output.
  absWorkingDir: here,
});

const files = bundle.outputFiles.map((file) => [file.path, file.text]);
for (const name of ["index.html", "icon.svg"]) {
  files.push([join(out, name), readFileSync(join(here, "src", name), "utf8")]);
}

if (process.argv.includes("--check")) {
  const old = files.filter(([path, text]) => !isSame(path, text)).map(([path]) => path);
  for (const path of old) console.error(`ui: ${path} is not built from the present sources; run: make ui`);
  process.exit(old.length === 0 ? 0 : 1);
}

mkdirSync(out, { recursive: true });
for (const [path, text] of files) writeFileSync(path, text);

function isSame(path, text) {
  try {
    return readFileSync(path, "utf8") === text;
  } catch {
    return false;
  }
}
