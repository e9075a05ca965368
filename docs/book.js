// Pages link to files of the repository, such as examples, which are not in the book: those links lead to the repository.

const repository = 'https://github.com/ostler-dev/ostler/blob/main/';
const above = (path) => /^(\.\.\/)*/.exec(path)[0].length;

for (const link of document.querySelectorAll('.content a[href^="../"]')) {
  const href = link.getAttribute('href');
  if (above(href) > above(path_to_root)) {
    // mdBook has changed the names of pages.
    link.href = repository + href.slice(above(href)).replace(/\.html(#|$)/, '.md$1');
  }
}
