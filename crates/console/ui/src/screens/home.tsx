// Home: what runs now.
import { PageHead, Button } from '../kit';

export default function Home() {
  return <div class="page"><PageHead title="Home" actions={<Button kind="primary" icon="play" href="/playground">Run something</Button>} /></div>;
}
