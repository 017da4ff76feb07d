// Before anything is painted: the theme that was chosen here.
'use strict';
try {
  const chosen = localStorage.getItem('idmill.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Nothing may be kept here: the system's theme it is.
}
