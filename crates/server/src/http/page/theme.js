// Applies the stored theme before the first paint.
'use strict';
try {
  const chosen = localStorage.getItem('idmill.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is blocked: use the system's theme.
}
