"use strict";(()=>{try{let e=localStorage.getItem("cove.theme");(e==="light"||e==="dark")&&(document.documentElement.dataset.theme=e)}catch{}})();
