// Before anything is drawn: the light that was chosen here, if one was.
try {
  const chosen = localStorage.getItem("hipq-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* no storage: the system's choice */ }
